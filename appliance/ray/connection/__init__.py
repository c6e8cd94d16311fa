"""The connection to Ray: its address, its start, its end, its folders."""
