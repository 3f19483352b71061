"""`fedwatt data`: make fleets, from nothing or from recordings, change them and look at them."""

import typer

from fedwatt.cli.data import change, describe, importing, synth

app = typer.Typer(help="Make fleets, change them and look at them.", no_args_is_help=True)
app.command("import")(importing.import_)
app.command("map")(importing.map_)
app.command("synth")(synth.synth)
app.command("electrify")(synth.electrify)
app.command("merge")(change.merge)
app.command("partition")(change.partition)
app.command("spoil")(change.spoil)
app.command("describe")(describe.describe)
