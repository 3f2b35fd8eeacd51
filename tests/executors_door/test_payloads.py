"""Payloads that an executor declares: checked by name, decoded, described."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

from jobqueue import BaseExecutor, executor
from jobqueue.errors import InvalidInput
from jobqueue.executors import payload_decoder, payload_schema, validate_payload

if TYPE_CHECKING:
    from collections.abc import Mapping as Unknown

Registry = dict[str, BaseExecutor]

pytestmark = pytest.mark.usefixtures("registry")


class Item(Struct):
    sku: Annotated[str, Meta(min_length=1)]
    qty: Annotated[int, Meta(ge=1, le=99)] = 1


class Order(Struct, forbid_unknown_fields=True):
    customer: str
    items: Annotated[list[Item], Meta(min_length=1)]
    note: str | None = None


def by_attribute() -> None:
    @executor("order")
    class ByAttribute(BaseExecutor):
        payload_type = Order

        def execute(self, job_id: str, payload: Any) -> None: ...


def by_annotation() -> None:
    @executor("order")
    class ByAnnotation(BaseExecutor):
        async def execute(self, job_id: str, payload: Order) -> Unknown[str, str] | None: ...


def by_another_name() -> None:
    @executor("order")
    class ByAnotherName(BaseExecutor):
        async def execute(self, job_id: str, order: Order) -> None: ...


def by_function() -> None:
    @executor("order")
    def place_order(job_id: str, payload: Order) -> Unknown[str, str] | None: ...


DECLARED = pytest.mark.parametrize("declare", [by_attribute, by_annotation, by_another_name, by_function])
GOOD = {"customer": "ann", "items": [{"sku": "a", "qty": 2}]}


@DECLARED
def test_declared_payload_is_checked_and_decoded(declare: Callable[[], None], registry: Registry) -> None:
    declare()

    validate_payload("order", GOOD)
    with pytest.raises(InvalidInput) as refused:
        validate_payload("order", {**GOOD, "customer": 7})
    decoded = payload_decoder(registry["order"])(msgspec.Raw(msgspec.json.encode(GOOD)))

    assert refused.value.field == "payload.customer"
    assert str(refused.value) == "payload.customer: Expected `str`, got `int`"
    assert decoded == Order("ann", [Item("a", 2)])


@pytest.mark.parametrize(
    ("payload", "field", "message"),
    [
        ({**GOOD, "items": [{"sku": "a", "qty": 0}]}, "payload.items[0].qty", "Expected `int` >= 1"),
        ({**GOOD, "items": [{"sku": "a"}, {"sku": ""}]}, "payload.items[1].sku", "Expected `str` of length >= 1"),
        ({**GOOD, "items": []}, "payload.items", "Expected `array` of length >= 1"),
        ({**GOOD, "items": [{}]}, "payload.items[0].sku", "Object missing required field `sku`"),
        ({"items": [{"sku": "a"}]}, "payload.customer", "Object missing required field `customer`"),
        ({**GOOD, "custmer": 1}, "payload.custmer", "Object contains unknown field `custmer`"),
    ],
)
def test_refusal_names_the_field_and_what_is_allowed(payload: dict[str, Any], field: str, message: str) -> None:
    by_function()

    with pytest.raises(InvalidInput) as refused:
        validate_payload("order", payload)

    assert refused.value.field == field
    assert message in str(refused.value)


@pytest.mark.parametrize("annotation", [dict, Any, "NotToBeFound", int])
def test_any_other_annotation_takes_every_object(annotation: Any, registry: Registry) -> None:
    def loose(job_id, payload): ...  # type: ignore[no-untyped-def]  # annotated below

    loose.__annotations__["payload"] = annotation
    executor("loose")(loose)

    validate_payload("loose", {"anything": [1, None]})
    assert payload_decoder(registry["loose"])(msgspec.Raw(b'{"a": 1}')) == {"a": 1}
    assert payload_schema(registry["loose"]) is None


def test_schema_is_json_schema(registry: Registry) -> None:
    by_function()

    schema = payload_schema(registry["order"])

    assert schema is not None
    assert schema["$ref"] == "#/$defs/Order"
    assert schema["$defs"]["Order"]["required"] == ["customer", "items"]
    assert schema["$defs"]["Order"]["additionalProperties"] is False
    assert schema["$defs"]["Item"]["properties"]["qty"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 99,
        "default": 1,
    }


def test_stored_payload_that_does_not_fit_any_more_fails_with_the_reason(registry: Registry) -> None:
    by_attribute()

    with pytest.raises(msgspec.ValidationError, match=r"missing required field `items`"):
        payload_decoder(registry["order"])(msgspec.Raw(b'{"customer": "ann"}'))
