"""How much arithmetic and how many bytes an operator needs, by the sizes of its inputs."""
