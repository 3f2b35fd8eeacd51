"""Typed payloads: an executor that annotates its payload with a ``msgspec.Struct`` gets it checked and decoded."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from jobqueue.errors import InvalidInput
from jobqueue.executors.registry import EXECUTOR_REGISTRY, BaseExecutor


def payload_struct(instance: BaseExecutor) -> type[msgspec.Struct] | None:
    """Return the Struct that payloads of this executor must fit, or None when any object will do."""
    if instance.payload_type is not None:
        return instance.payload_type
    execute = instance.execute
    bound = getattr(execute, "__func__", None)
    return _annotated_struct(execute, 1) if bound is None else _annotated_struct(bound, 2)


@lru_cache(maxsize=1024)
def _annotated_struct(function: Callable[..., Any], position: int) -> type[msgspec.Struct] | None:
    """Return the Struct that annotates the parameter at *position*.

    Kept, because resolving annotations costs more than all other checks of a create together. Only this one is
    resolved: another that names something imported for the type checker alone must not hide it.
    """
    function = inspect.unwrap(function)
    try:
        parameter = list(inspect.signature(function).parameters.values())[position]
        holder = type("holder", (), {"__annotations__": {"payload": parameter.annotation}})
        hint = typing.get_type_hints(holder, globalns=getattr(function, "__globals__", None)).get("payload")
    except Exception:  # noqa: BLE001  an annotation that cannot be resolved declares nothing
        return None
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def payload_schema(instance: BaseExecutor) -> dict[str, Any] | None:
    """Return the JSON Schema of the executor's payload, or None when any object will do."""
    struct = payload_struct(instance)
    if struct is None:
        return None
    (schema,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    return {**schema, "$defs": components}


def validate_payload(name: str, payload: dict[str, Any]) -> None:
    """Check *payload* against what the executor of job type *name* declares, if it does.

    Raises:
        InvalidInput: the first field that does not fit, as ``payload.field``.
    """
    instance = EXECUTOR_REGISTRY.get(name)
    struct = payload_struct(instance) if instance is not None else None
    if struct is None:
        return
    try:
        msgspec.convert(payload, struct)
    except msgspec.ValidationError as error:
        field, message = _located(str(error))
        raise InvalidInput(field, f"{field}: {message}") from error


def payload_decoder(instance: BaseExecutor) -> Callable[[msgspec.Raw], Any]:
    """Return what decodes a stored payload for ``execute``: to the declared Struct, else to a dict.

    The decoder raises msgspec.DecodeError when the payload does not fit (any more).
    """
    struct = payload_struct(instance)
    return msgspec.json.Decoder().decode if struct is None else msgspec.json.Decoder(struct).decode


def _located(message: str) -> tuple[str, str]:
    """Split msgspec's ``Expected `int`, got `str` - at `$.amount``` into field and message."""
    match = re.fullmatch(r"(.*) - at `\$(.*)`", message)
    path = match.group(2) if match else ""
    text = match.group(1) if match else message
    missing = re.search(r"missing required field `(\w+)`|contains unknown field `(\w+)`", text)
    name = next((group for group in missing.groups() if group), "") if missing else ""
    return f"payload{path}{'.' + name if name else ''}", text
