"""The lake and the landing folder of this deployment."""
