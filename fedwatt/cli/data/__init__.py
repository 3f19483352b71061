"""`fedwatt data`: make fleets: import, generate, change and describe them."""

import typer

from fedwatt.cli.console import Panels
from fedwatt.cli.data import change, generate, importing

app = typer.Typer(cls=Panels, no_args_is_help=True)
app.command("import")(importing.import_)
app.command("map")(importing.map_)
app.command("generate")(generate.generate)
app.command("electrify")(generate.electrify)
app.command("merge")(change.merge)
app.command("partition")(change.partition)
app.command("corrupt")(change.corrupt)
app.command("describe")(change.describe)
