"""The part of farandole.h that tests call by ctypes."""

from __future__ import annotations

import ctypes

# Of farandole.h.
ALLREDUCE, SUM, FLOAT32, CUDA, READY_AFTER_ALL = 0, 0, 8, 1, 1
DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimension_count", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ready_event", ctypes.c_void_p),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("operation", ctypes.c_int32),
        ("tensors", ctypes.POINTER(Tensor)),
        ("tensor_count", ctypes.c_uint32),
        ("reduce", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("stream", ctypes.c_void_p),
        ("done", DONE),
        ("done_argument", ctypes.c_void_p),
        ("process_set", ctypes.c_int32),
        ("split_count", ctypes.c_uint32),
        ("splits", ctypes.c_void_p),
        ("ranks", ctypes.c_void_p),
        ("rank_count", ctypes.c_uint32),
        ("site", ctypes.c_char_p),
        ("ready", ctypes.c_int32),
        ("done_when_readable", ctypes.c_int32),
    ]


class Api(ctypes.Structure):
    _names = "last_error init shutdown is_initialized rank size enqueue poll wait output release run keep drop".split()
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in _names),
    ]
