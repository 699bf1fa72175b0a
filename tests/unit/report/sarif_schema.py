"""The part of SARIF 2.1.0 that GraphGuard writes, as a JSON schema after the standard's sections 3.13 to 3.57.

Objects are closed, as they are in the standard's own schema, so a misspelt property fails.
"""

from typing import Any


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _array(items: dict[str, Any], *, unique: bool = False) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": unique}


TEXT = {"type": "string"}
URI = {"type": "string", "pattern": r"^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$"}
COUNT = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
BAG = {"type": "object"}
MESSAGE = _object(("text",), text=TEXT)
ARTIFACT = _object(uri=URI, uriBaseId=TEXT)
REGION = _object(startLine=COUNT, startColumn=COUNT, endLine=COUNT, endColumn=COUNT)
LOCATION = _object(
    physicalLocation=_object(("artifactLocation",), artifactLocation=ARTIFACT, region=REGION),
    message=MESSAGE,
)
REPLACEMENT = _object(("deletedRegion",), deletedRegion=REGION, insertedContent=_object(text=TEXT))
CHANGE = _object(
    ("artifactLocation", "replacements"), artifactLocation=ARTIFACT, replacements={**_array(REPLACEMENT), "minItems": 1}
)
FIX = _object(("artifactChanges",), description=MESSAGE, artifactChanges={**_array(CHANGE, unique=True), "minItems": 1})
RESULT = _object(
    ("message",),
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    message=MESSAGE,
    locations=_array(LOCATION),
    relatedLocations=_array(LOCATION, unique=True),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    fixes=_array(FIX, unique=True),
    suppressions=_array(_object(("kind",), kind={"enum": ["inSource", "external"]}), unique=True),
    properties=BAG,
)
RULE = _object(
    ("id",),
    id=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=_object(level=LEVEL),
)
RUN = _object(
    ("tool",),
    tool=_object(("driver",), driver=_object(("name",), name=TEXT, version=TEXT, rules=_array(RULE, unique=True))),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={"type": "object", "additionalProperties": ARTIFACT},
    invocations=_array(_object(("executionSuccessful",), executionSuccessful={"type": "boolean"}), unique=True),
    results=_array(RESULT),
)
SARIF = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_object(("version", "runs"), **{"$schema": TEXT}, version={"const": "2.1.0"}, runs=_array(RUN)),
}
