"""What the commands of the command line do: plain functions; typer in `arguments`, `study_cli`."""
