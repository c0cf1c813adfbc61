"""What is to be seen of an application from outside: of one instance over HTTP, of the whole group by its broker."""
