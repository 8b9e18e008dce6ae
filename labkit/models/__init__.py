"""The models of the course: a recommendation model (DLRM) and a speech recogniser."""
