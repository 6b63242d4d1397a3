"""Where the text comes from and how it is prepared."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from anydepth.config.section import ConfigSection

Task = Literal["translation", "text", "labels"]


class CorpusConfig(ConfigSection):
    """Where sentence pairs come from: `source` and `target`, or `tsv`, or `huggingface`; or `text`, which has no
    translations; or `labelled`, which has labels instead. Files may be gzipped."""

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
    text: Path | None = Field(None, description="one text file, a sentence per line, for masked language modelling")
    labelled: Path | None = Field(
        None, description="texts to classify: a file of `label<TAB>text`, or a .csv with a row of column names"
    )
    text_column: str = Field("text", description="the column of a .csv with the text")
    label_column: str = Field("label", description="the one with the label")
    weight: float = Field(
        1.0,
        gt=0,
        le=100,
        description="of several training corpora: how many times an epoch has each pair of this one; 0.5 is half of "
        "them, another half each time; above 1, `augment` changes all copies of a pair alike in an epoch",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "CorpusConfig":
        two_files = self.source is not None and self.target is not None
        if (self.source is None) != (self.target is None):
            raise ValueError("give both source and target")
        if two_files + sum(given is not None for given in self._alternatives) != 1:
            raise ValueError("give exactly one of source with target, tsv, huggingface, text, or labelled")
        if self.tsv is not None:
            for column in (self.source_column, self.target_column):
                if not isinstance(column, int) or column < 1:
                    raise ValueError("the columns of a tsv are numbers, counted from 1")
        return self

    @property
    def _alternatives(self) -> tuple[Path | str | None, ...]:
        return (self.tsv, self.huggingface, self.text, self.labelled)

    @property
    def kind(self) -> Task:
        """What a model learns from it."""
        return "text" if self.text is not None else "labels" if self.labelled is not None else "translation"

    @property
    def title(self) -> str:
        """For display: file names without folders, which are private."""
        paths = (self.source, self.target, self.tsv, self.text, self.labelled)
        return self.huggingface or ", ".join(path.name for path in paths if path is not None)


def _one_or_several(value: Any) -> str:
    return "several" if isinstance(value, list) else "one"


# Distinguished by what was given, so that an error is about what was meant.
Corpora = Annotated[
    Annotated[CorpusConfig, Tag("one")] | Annotated[list[CorpusConfig], Tag("several")],
    Discriminator(_one_or_several),
]


class PairConfig(ConfigSection):
    """A language pair of several that one model learns."""

    model_config = ConfigDict(json_schema_extra={"required": ["source_language", "train"]})

    source_language: str = Field(description="language code of the source")
    target_language: str = Field(
        description="language code of the target, which a `text` has not; where there are several, the source begins "
        "with a tag such as `<2fr>`"
    )
    train: Corpora = Field(description="the training corpus, or a list of several")
    valid: CorpusConfig | None = Field(None, description="the validation corpus; without it `hold_out` pairs of train")

    @model_validator(mode="before")
    @classmethod
    def _a_text_needs_no_target(cls, values: Any) -> Any:
        if isinstance(values, dict) and "source_language" in values and "target_language" not in values:
            train = values.get("train")
            train = train[0] if isinstance(train, list) and train else train
            if isinstance(train, dict) and not train.keys().isdisjoint({"text", "labelled"}):
                return {**values, "target_language": values["source_language"]}
        return values

    @property
    def name(self) -> str:
        return f"{self.source_language}-{self.target_language}"

    @model_validator(mode="after")
    def _weights_weigh_something(self) -> "PairConfig":
        if not self.training:
            raise ValueError("train is an empty list: give a corpus, or several")
        if self.valid is not None and self.valid.weight != 1:
            raise ValueError("weight has no effect on a validation corpus: leave it out")
        if len(self.training) == 1 and self.training[0].weight != 1:
            raise ValueError("weight has no effect on a single corpus: leave it out")
        return self

    @model_validator(mode="after")
    def _a_text_has_one_language(self) -> "PairConfig":
        if self.kind != "translation" and self.target_language != self.source_language:
            raise ValueError(f"a text has one language: leave out the target_language {self.target_language}")
        return self

    @property
    def training(self) -> list[CorpusConfig]:
        return self.train if isinstance(self.train, list) else [self.train]

    @property
    def corpora(self) -> list[CorpusConfig]:
        return [*self.training, *([] if self.valid is None else [self.valid])]

    @property
    def kind(self) -> Task:
        return self.training[0].kind


Proportion = Annotated[float, Field(ge=0, le=1)]


class AugmentConfig(ConfigSection):
    """Changes of training pairs, so that a model learns text as people write it. Each is made to this share of the
    pairs, different ones in every epoch; one pair may get several."""

    no_final_punctuation: Proportion = Field(0.0, description="the full stop, question or exclamation mark is left out")
    upper: Proportion = Field(0.0, description="both sides in capitals")
    lower: Proportion = Field(
        0.0, description="the source in small letters; the target keeps its capitals, except that of the first word"
    )
    no_accents: Proportion = Field(0.0, description="the source without accents")
    typos: Proportion = Field(0.0, description="typing errors in the source, about one in forty characters")
    join: Proportion = Field(0.0, description="followed by one to three other pairs: several sentences on a line")
    numbers: Proportion = Field(0.0, description="other digits in the numbers that both sides have")
    measures: Proportion = Field(
        0.0, description="replaced by a number, date, price or measurement, as each language writes it (CLDR)"
    )
    placeholders: Proportion = Field(
        0.0,
        description="with something that is carried over, such as {name}, %s, <b>, an address or code: in the place of "
        "a name or number of both sides, or at an end",
    )
    copies: Proportion = Field(
        0.0,
        description="replaced by a line that stays as it is: names, numbers, addresses or code",
    )
    target_as_source: Proportion = Field(
        0.0, description="the target on both sides: text that is in the target language already stays as it is"
    )


class DataConfig(ConfigSection):
    source_language: str = Field("source", description="language code of the source, for the model card")
    target_language: str = Field("target", description="language code of the target")
    licence: str | None = Field(None, description="licence and origin of the corpus, for the model card")
    train: Corpora | None = Field(None, description="the training corpus, or a list of several, each with these keys")
    valid: CorpusConfig | None = Field(None, description="the validation corpus; without it `hold_out` pairs of train")
    pairs: list[PairConfig] = Field(
        [],
        description="several language pairs for one model, instead of train and valid; what one of them holds out is "
        "not trained on in any",
    )
    sampling: Literal["each", "temperature"] = Field(
        "each",
        description="each: every update has a batch of every pair; temperature: pairs are sampled, see `temperature`",
    )
    temperature: float = Field(
        5.0,
        ge=1,
        description="pairs are sampled by size ^ (1 / temperature): 1 is by size; the higher, the more evenly",
    )
    folds: int | None = Field(
        None,
        ge=2,
        le=100,
        description="cross-validation of labelled texts: the number of parts of about equal size; one is kept for "
        "testing (RUN/data/test.tsv)",
    )
    fold: int = Field(1, ge=1, description="the part that is kept, from 1; `anydepth train --folds` takes each in turn")
    masked: float = Field(0.15, gt=0, lt=1, description="share of the subwords of a `text` to predict")
    hold_out: int = Field(
        1000,
        ge=1,
        description="pairs, or sentences of a text, held out of train for validation, no source shared, if `valid` is "
        "not given",
    )
    decontaminate: list[Path] = Field(
        [],
        description="decontamination: text files such as test sets, or files of labelled texts; pairs with one of "
        "their lines on either side are not trained on",
    )
    vocabulary: int = Field(8000, ge=100, le=250_000, description="size of the joint sentencepiece vocabulary")
    tokenizer: Path | None = Field(
        None, description="a model, a run or a tokenizer.model whose subwords to use; `vocabulary` is then not used"
    )
    character_coverage: float | None = Field(
        None,
        gt=0.9,
        le=1,
        description="share of the text's characters that get pieces of their own; empty: 0.9999 with `byte_fallback`, "
        "else all",
    )
    required_characters: str = Field(
        "",
        description="characters that get pieces of their own however rare they are, such as 0123456789%€@",
    )
    split_digits: bool = Field(False, description="a piece for each digit: numbers are read and written digit by digit")
    lowercase_capitals: bool = Field(
        False,
        description="translate a text in capitals in lowercase, and put the translation in capitals: few subwords of "
        "the vocabulary are in capitals",
    )
    vocabulary_sample: int = Field(2_000_000, ge=100, description="lines at most that sentencepiece trains on")
    byte_fallback: bool = Field(True, description="spell characters outside the vocabulary as bytes")
    max_tokens: int = Field(
        250, ge=2, description="pairs with a longer side, in subwords, are left out; a labelled text is cut"
    )
    max_ratio: float = Field(
        3.0, gt=1, description="maximum length ratio of the two sides, in characters (10 added to both)"
    )
    deduplicate: bool = Field(True, description="leave out pairs that have occurred before")
    augment: AugmentConfig | None = Field(
        None,
        description="changes of training pairs, sampled anew in every epoch; the vocabulary includes them",
    )

    language_tokens: dict[str, tuple[str | None, str | None]] = Field(
        {},
        description="set by `init_from`, if that is an imported model of several languages: by the name of a pair, the "
        "tokens that its sources and its targets begin with",
    )

    @model_validator(mode="after")
    def _train_or_pairs(self) -> "DataConfig":
        if not self.train and not self.pairs:
            raise ValueError("there is nothing to train on: give train, or pairs for several language pairs")
        if self.train is not None and self.pairs:
            raise ValueError("train and pairs are both given: leave out one, or change the train of a pair in pairs")
        if self.pairs and self.valid is not None:
            raise ValueError("with pairs each of them has a valid of its own: leave out data.valid")
        for key in ("source_language", "target_language"):
            if self.pairs and self._is_changed(key):
                raise ValueError(f"with pairs each of them names its languages: leave out data.{key}")
        return self

    def _is_changed(self, key: str) -> bool:
        """Not whether it was given: a recipe that was read back from a run gives all keys."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)

    @model_validator(mode="after")
    def _pairs_have_names(self) -> "DataConfig":
        """The names become those of files and of depths."""
        for pair in self.pairs:
            for code in (pair.source_language, pair.target_language):
                if not re.fullmatch("[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", code):
                    raise ValueError(f"in pairs, write {code!r} as a language code such as en or pt-BR")
        for corpus in (corpus for pair in self.pairs for corpus in pair.training):
            if corpus.weight % 1:
                raise ValueError(
                    f"with several language pairs a weight is a whole number, and {corpus.weight:g} is not"
                )
        names = [pair.name for pair in self.pairs]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"the pair {twice[0]} is there twice: put its text into one corpus")
        return self

    @model_validator(mode="after")
    def _text_everywhere_or_nowhere(self) -> "DataConfig":
        kinds = {corpus.kind for pair in self.corpora for corpus in pair.corpora}
        if len(kinds) > 1:
            raise ValueError(
                "give a text in each corpus or in none, and labelled texts likewise: a model learns to translate, to "
                "fill in, or to classify"
            )
        has_target = self._is_changed("target_language") and self.target_language != self.source_language
        if self.task != "translation" and has_target:
            raise ValueError("a text has one language: leave out data.target_language")
        return self

    @model_validator(mode="after")
    def _keys_have_an_effect(self) -> "DataConfig":
        for key in ("sampling", "temperature"):
            if len(self.corpora) == 1 and self._is_changed(key):
                raise ValueError(f"{key} has no effect with one language pair: leave it out")
        if self.sampling == "each" and self._is_changed("temperature"):
            raise ValueError("temperature has no effect where sampling is each: set sampling to temperature")
        if not self.is_text and self._is_changed("masked"):
            raise ValueError("masked has no effect without a text: leave it out")
        if self.task != "translation" and self.augment is not None:
            raise ValueError("augment is for translation: leave it out")
        if self.task == "labels" and self.pairs:
            raise ValueError("labelled texts are of one language: give train instead of pairs")
        for key in ("folds", "fold"):
            if self.task != "labels" and self._is_changed(key):
                raise ValueError(f"{key} has no effect without labelled texts: leave it out")
        if self.folds is not None and self.fold > self.folds:
            raise ValueError(f"fold {self.fold} is more than there are, {self.folds}")
        if self.folds is None and self._is_changed("fold"):
            raise ValueError("fold has no effect without folds: say how many there are")
        return self

    @property
    def corpora(self) -> list[PairConfig]:
        """All language pairs, one or several."""
        if self.train is None:
            return self.pairs
        first = self.train[0] if isinstance(self.train, list) else self.train
        target = self.target_language if first.kind == "translation" else self.source_language
        return [
            PairConfig(source_language=self.source_language, target_language=target, train=self.train, valid=self.valid)
        ]

    @property
    def task(self) -> Task:
        return self.corpora[0].kind

    @property
    def is_text(self) -> bool:
        """Sentences without translations, of which a model learns to predict what has been masked."""
        return self.task == "text"

    @property
    def is_labelled(self) -> bool:
        """Texts with labels, which a model learns to tell."""
        return self.task == "labels"

    @property
    def tags(self) -> dict[str, str]:
        """The name of each pair with the symbol that asks for its target language; none where there is no choice."""
        if self.language_tokens:
            return {name: source for name, (source, _) in self.language_tokens.items() if source is not None}
        targets = {pair.name: pair.target_language for pair in self.corpora}
        if self.task != "translation" or len(set(targets.values())) < 2:
            return {}
        return {name: f"<2{target}>" for name, target in targets.items()}

    @property
    def target_tags(self) -> dict[str, str]:
        """The name of each pair with the symbol that its targets begin with; only imported models have such."""
        return {name: target for name, (_, target) in self.language_tokens.items() if target is not None}

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target languages, for display."""
        sources = sorted({pair.source_language for pair in self.corpora})
        targets = sorted({pair.target_language for pair in self.corpora})
        return ", ".join(sources), ", ".join(targets)
