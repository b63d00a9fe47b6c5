from __future__ import annotations

from mxnum.conformance import libraries


def test_the_page_is_printed_or_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "rows_of", lambda library, advance: [])
    assert "## ml_dtypes" in run("conformance", "--library", "ml_dtypes")
    path = tmp_path / "page.md"
    run("conformance", "--library", "ml_dtypes", "--out", path)
    assert path.read_text().startswith("# Conformance of other libraries")


def test_a_library_that_is_not_known(run):
    assert "did you mean 'torch'" in run("conformance", "--library", "torhc", status=2)
