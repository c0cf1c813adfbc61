"""What the leader of a group does: it asks the assignor, and sends each member its part."""
