import gzip

import pytest

from anydepth.data.corpus import read_labelled
from anydepth.errors import UserError


def written(tmp_path, name, content):
    path = tmp_path / name
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.txt"])
def test_lines(tmp_path, name):
    path = written(tmp_path, name, 'good\tone\ttwo "quoted"\r\n bad \t\ngood\t x')
    assert list(read_labelled(path)) == [('one\ttwo "quoted"', "good"), ("", "bad"), (" x", "good")]


CSV = '\ufefflabel,text,source\n1,"Two ""lines"",\nof text",x\n\n0,,y\r\n1,plain,z\n'


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.CSV"])
def test_csv(tmp_path, name):
    path = written(tmp_path, name, CSV)
    assert list(read_labelled(path)) == [('Two "lines",\nof text', "1"), ("", "0"), ("plain", "1")]
    assert [pair[1] for pair in read_labelled(path, label_column="source")] == ["x", "y", "z"]
    assert next(read_labelled(path, "source", "label")) == ("x", "1")


def test_long_texts_in_csv(tmp_path):
    text = "word " * 100_000
    assert list(read_labelled(written(tmp_path, "a.csv", f"text,label\n{text},1\n"))) == [(text, "1")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "good\tx\nbad x\n", "line 2: there is no tab"),
        ("a.tsv", "good\tx\n \tx\n", "line 2: the label is empty"),
        ("a.tsv", "", "is empty"),
        ("a.tsv", b"good\tx\nbad\t\xff\n", "line 2: not valid UTF-8"),
        ("a.csv", "", "is empty"),
        ("a.csv", "text,label\n", "no rows"),
        ("a.csv", "review,stars\nx,1\n", "no column 'text': choose from review, stars"),
        ("a.csv", "text,stars\nx,1\n", "no column 'label': choose from text, stars"),
        ("a.csv", 'text,label\n"a\nb",1\nc,\n', "line 4: the label is empty"),
        ("a.csv", "text,label\na, b,1\n", "line 2: 3 fields where the header has 2"),
        ("a.csv", "text,label\na\n", "line 2: 1 fields"),
        ("a.csv", 'text,label\n"a,1\nb,1\n', "not CSV"),
        ("a.csv", b"text,label\nx,1\n\xff,1\n", "line 3: not valid UTF-8"),
    ],
)
def test_refusals(tmp_path, name, content, said):
    with pytest.raises(UserError, match=said) as caught:
        list(read_labelled(written(tmp_path, name, content)))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    for name in ("a.tsv", "a.csv"):
        with pytest.raises(UserError, match="does not exist"):
            list(read_labelled(tmp_path / name))
        with pytest.raises(UserError, match="is a folder"):
            list(read_labelled(tmp_path))
    for name in ("b.tsv.gz", "b.csv.gz"):
        path = written(tmp_path, name, "text,label\n" + "one\ttwo,1\n" * 1000)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(UserError, match="gzip file is damaged"):
            list(read_labelled(path))
