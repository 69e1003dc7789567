"""Calls: check the arguments of a call, and translate errors of libraries into errors of foldhouse."""
