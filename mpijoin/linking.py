"""This module loads machine code from an object file into this process."""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm


def address_of(name: str, octets: bytes) -> int:
    """Loads an object file that is not loaded yet. Returns the address of its function of this name."""
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(octets))
    engine.finalize_object()
    return engine.get_function_address(name)


@cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
