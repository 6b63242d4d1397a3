"""`anydepth schema`: the JSON schema of recipes, for editors."""

import typer


def schema() -> None:
    """Print the JSON schema of recipes, for completion and validation in an editor.

    A recipe names it in a comment: `# yaml-language-server: $schema=recipe.schema.json`
    """
    from anydepth.config import keys_as_schema

    typer.echo(keys_as_schema(), nl=False)
