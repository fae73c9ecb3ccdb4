"""A task's arguments as JSON. They are checked against its signature at the enqueue, and again at the run."""

from __future__ import annotations

import inspect
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from dibs.errors import InvalidArgument
from dibs.places import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments:
    """The parameters of a function, as a type that JSON is read into."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._signature, hints = self._shape_of(function)
        self.returns = _returned(hints)
        fields: list[Any] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind not in _NAMED:
                raise InvalidArgument(
                    f"task {name} takes {parameter}, which cannot be kept as JSON by name",
                    hint="name every argument; a task takes no *args, no **kwargs and nothing positional-only",
                )
            kind = hints.get(parameter.name, Any)
            empty = parameter.default is inspect.Parameter.empty
            fields.append((parameter.name, kind) if empty else (parameter.name, kind, _default(parameter.default)))
        self._shape = msgspec.defstruct(f"{name} arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(self._shape, dec_hook=_decode)
        parameters = self._signature.parameters.values()
        self._positional = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        self._least = max((n for n, p in enumerate(parameters, 1) if p.default is inspect.Parameter.empty), default=0)

    def _shape_of(self, function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
        return signature_of(function), get_type_hints(function)

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the task."""
        return self._signature

    def describe(self) -> list[dict[str, Any]]:
        """Return the arguments' names, their types as written, and True for those that are required."""
        empty = inspect.Parameter.empty
        return [
            {
                "name": p.name,
                "type": "Any" if p.annotation is empty else inspect.formatannotation(p.annotation),
                "required": p.default is empty,
            }
            for p in self._signature.parameters.values()
        ]

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments of a call to JSON values. Refuse a call that does not fit the signature."""
        given = self._bind(args, kwargs)
        try:
            packed: dict[str, Any] = msgspec.to_builtins(given, enc_hook=_encode)
        except (TypeError, InvalidArgument, RecursionError) as error:
            raise self._unfit(given, error) from None
        self._check(packed)
        return packed

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, in order."""
        if not kwargs and self._least <= len(args) <= len(self._positional):
            return dict(zip(self._positional, args, strict=False))
        try:  # Slower, but its error names the mistake.
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArgument(f"task {self.name}: {error}{self._near(kwargs)}", hint=self._takes) from None

    def _near(self, kwargs: Mapping[str, Any]) -> str:
        """Return a hint: the argument that the first unknown name probably meant."""
        unknown = next((name for name in kwargs if name not in self._signature.parameters), None)
        from difflib import get_close_matches

        near = [] if unknown is None else get_close_matches(unknown, self._signature.parameters, 1)
        return f"; did you mean {near[0]!r}?" if near else ""

    @property
    def _takes(self) -> str:
        return f"it takes {self._signature}"

    def _unfit(self, given: Mapping[str, Any], error: Exception) -> InvalidArgument:
        """Make the error that names the argument that cannot be JSON, and the place in it."""
        name = next((name for name, value in given.items() if _cannot_be_kept(value)), "")
        if isinstance(error, RecursionError):
            why = "is nested too deeply to be kept as JSON"
        else:
            root = f"$.{name}"
            place, part = place_of(given.get(name), _cannot_be_kept, root)
            verb = "is" if place == root else "holds"
            why = f"{verb} {_described(part)}, which cannot be kept as JSON - at `{place}`"
        return InvalidArgument(f"task {self.name}: argument {name!r} {why}", hint=self._takes)

    def unpack(self, payload: Any) -> dict[str, Any]:
        """Return the arguments to call the function with. The error for a payload that does not fit names the field."""
        return msgspec.structs.asdict(self._check({} if payload is None else payload))

    def _check(self, payload: Any) -> Any:
        try:
            return msgspec.convert(payload, self._shape, dec_hook=_decode)
        except msgspec.ValidationError as error:
            raise InvalidArgument(f"task {self.name}: {error}", hint=self._takes) from None

    def read(self, raw: str | None) -> dict[str, Any]:
        """Return the arguments to call the function with, from a payload as JSON text."""
        try:
            return msgspec.structs.asdict(self._decoder.decode("{}" if raw is None or raw == "null" else raw))
        except msgspec.MsgspecError as error:
            raise InvalidArgument(f"task {self.name}: {error}", hint=self._takes) from None
        except RecursionError as error:
            raise InvalidArgument(f"task {self.name}: the payload cannot be read: {error}") from None


class ItemArguments(Arguments):
    """The argument of one job of a batch handler: an item of the list that is its only parameter."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name, function)
        self.returns = _returned_for_each(get_type_hints(function))

    def _shape_of(self, function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
        parameters = list(signature_of(function).parameters.values())
        if len(parameters) != 1 or parameters[0].kind not in _NAMED:
            raise InvalidArgument(
                f"batch handler {self.name} takes ({', '.join(map(str, parameters))}), not one list",
                hint="such as: async def index(pages: list[Page])",
            )
        hint = get_type_hints(function).get(parameters[0].name, Any)
        item = (get_args(hint) or (Any,))[0]
        parameter = inspect.Parameter("item", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=item)
        return inspect.Signature([parameter]), {"item": item}


class WholePayload(Arguments):
    """The argument of a raw task: its whole payload, unchanged."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._signature = signature_of(function)
        self.returns: Any = _returned(_hints_if_known(function))
        self._names = tuple(self._signature.parameters)
        if len(self._names) != 1:
            raise InvalidArgument(f"raw task {name} takes {len(self._names)} arguments; it gets one, the whole payload")

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Convert the one argument to a JSON value."""
        given = [*args, *kwargs.values()]
        if len(given) != 1 or not kwargs.keys() <= set(self._names):
            raise InvalidArgument(f"task {self.name} takes one argument, its payload; it got {len(given)}")
        try:
            return msgspec.to_builtins(given[0], enc_hook=_encode)
        except (TypeError, InvalidArgument, RecursionError) as error:
            raise self._unfit({self._names[0]: given[0]}, error) from None

    def describe(self) -> list[dict[str, Any]]:
        """Return the one argument. It is the ``whole`` payload, so a producer sends it as it is."""
        return [{**argument, "whole": True} for argument in super().describe()]

    def unpack(self, payload: Any) -> dict[str, Any]:
        """Return the payload, under the argument's name."""
        return {self._names[0]: payload}

    def read(self, raw: str | None) -> dict[str, Any]:
        """Return the payload from JSON text, under the argument's name."""
        try:
            return self.unpack(None if raw is None else msgspec.json.decode(raw))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidArgument(f"task {self.name}: the payload cannot be read: {error}") from None


class _Written(str):
    """An annotation that is text, under ``from __future__ import annotations``: shown as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature, without quotes around annotations that are text."""
    found = inspect.signature(function)
    parameters = [p.replace(annotation=_written(p.annotation)) for p in found.parameters.values()]
    return found.replace(parameters=parameters, return_annotation=_written(found.return_annotation))


def _written(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _default(value: Any) -> Any:
    # A mutable default is created for each call, as msgspec wants it.
    return msgspec.field(default_factory=type(value)) if isinstance(value, list | dict | set) and not value else value


def _encode(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise InvalidArgument(f"{type(value).__name__} cannot be kept as JSON")


def _cannot_be_kept(value: Any) -> bool:
    try:
        msgspec.to_builtins(value, enc_hook=_encode)
    except (TypeError, InvalidArgument, RecursionError):
        return True
    return False


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _hints_if_known(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError:  # Imported for type checkers only; a raw task's argument is not read by its type.
        return {}


def _returned(hints: dict[str, Any]) -> Any:
    """Return the type of a result; Any if it is unknown, or if the handler returns None and may set a result."""
    known = hints.get("return", Any)
    return Any if known is type(None) else known


def _returned_for_each(hints: dict[str, Any]) -> Any:
    """Return the type of the result of one job of a batch: of an outcome that is not an exception."""
    kinds = [kind for kind in _options(hints.get("return", Any)) if kind is not type(None)]
    outcomes = _options((get_args(kinds[0]) or (Any,))[0]) if len(kinds) == 1 else (Any,)
    results = [kind for kind in outcomes if not (isinstance(kind, type) and issubclass(kind, BaseException))]
    return Any if Any in results or results in ([], [type(None)]) else Union[tuple(results)]  # noqa: UP007


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def _decode(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise InvalidArgument(f"{kind.__name__} cannot be read from JSON")
