"""What the commands of the command line do: plain functions, no typer."""
