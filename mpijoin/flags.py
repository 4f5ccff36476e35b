"""Bits of an array's `flags.num` that machine code for the array depends on."""

from __future__ import annotations

C_ORDER, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
FLAGS = C_ORDER | ALIGNED | WRITEABLE
