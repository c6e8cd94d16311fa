"""What an answer must look like, and what is said in it: schemas, calls of tools, thoughts."""
