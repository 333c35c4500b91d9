"""`syphon help`: the help of a command, as `--help` prints it."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def _completions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names that may follow the words before them, for shell completion."""
    found = ctx.find_root().command
    for word in ctx.params.get("words") or ():
        found = found.commands.get(word, found) if isinstance(found, click.Group) else found
    names = found.commands if isinstance(found, click.Group) else {}
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help", short_help="Show the help of a command, or of all.")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=_completions)
@click.option("--all", "everything", is_flag=True, help="Show the help of every command, one after the other.")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...], everything: bool) -> None:
    """Show the help of a command, as its --help does; without a name, the list of commands.

    \b
      syphon help drain
      syphon help dead-letters replay
      syphon help --all | less
    """
    if everything and words:
        raise click.UsageError("Name a command, or ask for --all.")
    root = ctx.find_root()
    context = click.Context(root.command, info_name=root.info_name, **root.command.context_settings)
    for word in words:
        found = context.command.get_command(context, word) if isinstance(context.command, click.Group) else None
        if found is None:
            path = context.command_path
            raise click.UsageError(f"There is no command '{path} {word}'. `{path} --help` lists what there is.")
        context = click.Context(found, parent=context, info_name=word)
    click.echo("\n\n\n".join(_pages(context)) if everything else context.get_help())


def _pages(context: click.Context) -> list[str]:
    """The help of a command, and of all below it."""
    found = [context.get_help()]
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None:
                found += _pages(click.Context(command, parent=context, info_name=name))
    return found
