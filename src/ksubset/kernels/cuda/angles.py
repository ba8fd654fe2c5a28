"""Sines and cosines of angles at nodes, in float64."""

from __future__ import annotations

import triton
import triton.language as tl

_PI = tl.constexpr(3.141592653589793)


@triton.jit
def sine(x):
    """sin x for |x| <= pi/2 in float64. (The interpreter that tests these kernels on CPUs has no
    tl.sin.)"""
    y = x * x
    r = 1.9572941063391263e-20 * y - 8.22063524662433e-18
    r = tl.fma(r, y, tl.full(y.shape, 2.8114572543455206e-15, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -7.647163731819816e-13, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, 1.6059043836821613e-10, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -2.505210838544172e-08, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, 2.7557319223985893e-06, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -1.984126984126984e-04, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, 8.333333333333333e-03, tl.float64))
    r = tl.fma(r, y, tl.full(y.shape, -1.6666666666666666e-01, tl.float64))
    return tl.fma(x * y, r, x)


@triton.jit
def half_angle(steps, number):
    """sin and cos of pi steps / number for 0 <= steps <= number, in float64."""
    # (The interpreter cannot take a constant of ours for the first factor.)
    s = sine(tl.minimum(steps, number - steps) * _PI / number)
    return s, sine((number - 2 * steps) * _PI / (2 * number))


@triton.jit
def rotation(steps, number):
    """cos and sin of 2 pi steps / number for whole steps, in float64."""
    s, c = half_angle(steps - number * tl.floor(steps / number), number)
    return 1 - 2 * s * s, 2 * s * c


@triton.jit
def rotation_by(angle):
    """cos and sin of any angle, in float64."""
    turns = angle * (1 / (2 * _PI))
    half = (turns - tl.floor(turns + 0.5)) * _PI
    s, c = sine(half), sine(0.5 * _PI - tl.abs(half))
    return 1 - 2 * s * s, 2 * s * c
