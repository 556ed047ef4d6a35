"""What Spark starts beside us: Python workers, and the scripts that stand in for the programs it calls."""
