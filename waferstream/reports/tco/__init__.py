"""Total cost of ownership: what a project of training costs on several machines, and when which
of them is the cheapest."""
