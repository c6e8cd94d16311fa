"""What programs set of the vendor's compiler, servers and monitoring: accepted without effect."""
