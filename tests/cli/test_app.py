from __future__ import annotations


def test_every_command_has_help_with_an_example(run):
    from mxnum.cli.app import app

    names = [command.name for command in app.registered_commands]
    assert names == sorted(set(names), key=names.index)
    listing = run("--help")
    for name in names:
        assert name in listing
        text = " ".join(run(name, "--help").split())
        assert "Example" in text, name
        assert f"mxnum {name}" in text, name


def test_every_command_takes_json(run):
    from mxnum.cli.app import app

    for command in app.registered_commands:
        if command.name not in ("vectors",):  # its output is a text format of its own
            assert "--json" in run(command.name, "--help"), command.name
