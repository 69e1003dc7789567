"""Proofs: is a table what another engine computes from all rows of its sources, and since when is it not?"""
