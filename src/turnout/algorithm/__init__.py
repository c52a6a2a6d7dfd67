"""The paper's three algorithms: the server's, and the clients' one decision."""
