"""Checks of rows before they are published: is a snapshot fit to be the head?"""
