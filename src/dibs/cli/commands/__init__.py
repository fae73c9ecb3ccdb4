"""The commands of ``dibs``: one module each, named after the command."""
