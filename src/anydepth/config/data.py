"""Where the text comes from and how it is prepared."""

from pathlib import Path

from pydantic import Field, model_validator

from anydepth.config.section import Section


class CorpusConfig(Section):
    """Where sentence pairs come from: `source` and `target`, or `tsv`, or `huggingface`. Files may be gzipped."""

    source: Path | None = Field(None, description="a text file, one source sentence per line")
    target: Path | None = Field(None, description="its translations, line by line")
    tsv: Path | None = Field(None, description="one file with a pair per line, split by tabs")
    source_column: int | str = Field(
        1,
        description="where the source is: a column number of the TSV, or a column or language of the data set",
    )
    target_column: int | str = Field(2, description="the same for the target")
    huggingface: str | None = Field(None, description="name of a Hugging Face data set (extra: anydepth[huggingface])")
    subset: str | None = Field(None, description="configuration of that data set, where it has several")
    split: str = Field("train", description="which of its splits to read")

    @model_validator(mode="after")
    def _one_kind(self) -> "CorpusConfig":
        two_files = self.source is not None and self.target is not None
        if (self.source is None) != (self.target is None):
            raise ValueError("give both source and target")
        if sum([two_files, self.tsv is not None, self.huggingface is not None]) != 1:
            raise ValueError("give exactly one of source with target, tsv, or huggingface")
        if self.tsv is not None:
            for column in (self.source_column, self.target_column):
                if not isinstance(column, int) or column < 1:
                    raise ValueError("the columns of a tsv are numbers, counted from 1")
        return self


class DataConfig(Section):
    source_language: str = Field("source", description="language code of the source, for the model card")
    target_language: str = Field("target", description="language code of the target")
    licence: str | None = Field(None, description="licence and origin of the corpus, for the model card")
    train: CorpusConfig = Field(description="the training corpus")
    valid: CorpusConfig | None = Field(None, description="the validation corpus; without it `hold_out` pairs of train")
    hold_out: int = Field(
        1000,
        ge=1,
        description="pairs held out of train for validation, no source shared, if `valid` is not given",
    )
    vocabulary: int = Field(8000, ge=100, le=250_000, description="size of the joint sentencepiece vocabulary")
    tokenizer: Path | None = Field(
        None, description="a model, a run or a tokenizer.model whose sub-words to use; `vocabulary` is then not used"
    )
    vocabulary_sample: int = Field(2_000_000, ge=100, description="lines at most that sentencepiece trains on")
    byte_fallback: bool = Field(True, description="spell characters outside the vocabulary as bytes")
    max_tokens: int = Field(250, ge=2, description="pairs with a longer side, in sub-words, are left out")
    max_ratio: float = Field(
        3.0, gt=1, description="longest allowed side in times of the other, in characters (10 added to both)"
    )
    deduplicate: bool = Field(True, description="leave out pairs that have occurred before")
