"""Files and folders of datasets: formats, places of samples, local copies."""
