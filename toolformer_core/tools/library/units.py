"""The tool `units`: converts a quantity from one unit into another, exactly.

    26.2 miles to kilometres -> 42.1648 km        98.6 F in C -> 37 °C        5 feet 7 inches to cm -> 170.18 cm

Factors are exact by definition, so that only the written number is rounded. Cups, pints, gallons and the like are those
of the United States. Without a second unit the quantity is given in the usual unit of the other system.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from toolformer_core.tools.custom.python_tool import tool
from toolformer_core.tools.library.readings import NUMBER, VERSION, WORD_NUMBER, number_of, one_line, written


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: base = factor * (value + offset)."""

    symbol: str  # as it is written in a response
    kind: str  # what it measures; only units of one kind can be converted
    factor: Fraction  # of the unit in the kind's base unit
    offset: Fraction  # 0 but of temperatures
    other: str  # symbol of the unit that is meant where no second unit is given; "": none


# kind: symbol | factor or sum of factors | the other system's unit | further names; `+s` also takes an s at its end
_TABLE = """
length: mm | 0.001 | in | millimetre+s millimeter+s
length: cm | 0.01 | in | centimetre+s centimeter+s
length: m | 1 | ft | metre+s meter+s
length: km | 1000 | mi | kilometre+s kilometer+s kms
length: in | 0.0254 | cm | inch inches
length: ft | 0.3048 | m | foot feet
length: yd | 0.9144 | m | yard+s yds
length: mi | 1609.344 | km | mile+s
length: nmi | 1852 | km | nautical_mile+s
mass: mg | 0.000001 | oz | milligram+s milligramme+s
mass: g | 0.001 | oz | gram+s gramme+s
mass: kg | 1 | lb | kilogram+s kilogramme+s kilo+s kgs
mass: t | 1000 | lb | tonne+s metric_ton+s
mass: oz | 0.028349523125 | g | ounce+s
mass: lb | 0.45359237 | kg | pound+s lbs
mass: st | 6.35029318 | kg | stone+s
volume: ml | 0.001 | fl oz | millilitre+s milliliter+s mL
volume: cl | 0.01 | fl oz | centilitre+s centiliter+s
volume: l | 1 | gal | litre+s liter+s L
volume: m³ | 1000 | gal | m3 m^3 cubic_metre+s cubic_meter+s
volume: tsp | 0.00492892159375 | ml | teaspoon+s
volume: tbsp | 0.01478676478125 | ml | tablespoon+s
volume: fl oz | 0.0295735295625 | ml | fluid_ounce+s
volume: cup | 0.2365882365 | ml | cup+s
volume: pt | 0.473176473 | l | pint+s
volume: qt | 0.946352946 | l | quart+s
volume: gal | 3.785411784 | l | gallon+s
area: cm² | 0.0001 | sq ft | cm2 cm^2 square_centimetre+s square_centimeter+s
area: m² | 1 | sq ft | m2 m^2 sq_m square_metre+s square_meter+s
area: km² | 1000000 | sq mi | km2 km^2 sq_km square_kilometre+s square_kilometer+s
area: ha | 10000 | acre | hectare+s
area: sq ft | 0.09290304 | m² | ft² ft2 ft^2 square_foot square_feet
area: acre | 4046.8564224 | ha | acre+s
area: sq mi | 2589988.110336 | km² | square_mile+s
speed: m/s | 1 | mph | metre+s_per_second meter+s_per_second
speed: km/h | 5/18 | mph | kph kmh kilometre+s_per_hour kilometer+s_per_hour km_per_hour
speed: mph | 0.44704 | km/h | mile+s_per_hour mi/h
speed: kn | 463/900 | km/h | knot+s
time: s | 1 | | second+s sec secs
time: min | 60 | | minute+s mins
time: h | 3600 | | hour+s hr hrs
time: days | 86400 | | day
time: weeks | 604800 | | week
temperature: °C | 1 + 273.15 | °F | C celsius degree+s_celsius degree+s_C centigrade
temperature: °F | 5/9 + 459.67 | °C | F fahrenheit degree+s_fahrenheit degree+s_F
temperature: K | 1 | °C | kelvin+s
energy: J | 1 | kcal | joule+s
energy: kJ | 1000 | kcal | kilojoule+s
energy: cal | 4.184 | J | calorie+s
energy: kcal | 4184 | kJ | kilocalorie+s
energy: kWh | 3600000 | kJ | kilowatt_hour+s kilowatt-hour+s
power: W | 1 | hp | watt+s
power: kW | 1000 | hp | kilowatt+s
power: hp | 745.69987158227022 | kW | horsepower
pressure: Pa | 1 | psi | pascal+s
pressure: kPa | 1000 | psi | kilopascal+s
pressure: bar | 100000 | psi | bars
pressure: atm | 101325 | psi | atmosphere+s
pressure: psi | 44482216152605/6451600000 | bar | pounds_per_square_inch
data: B | 1 | | byte+s
data: kB | 1000 | | KB kilobyte+s
data: MB | 1000000 | | megabyte+s
data: GB | 1000000000 | | gigabyte+s
data: TB | 1000000000000 | | terabyte+s
data: KiB | 1024 | | kibibyte+s
data: MiB | 1048576 | | mebibyte+s
data: GiB | 1073741824 | | gibibyte+s
"""
_AMBIGUOUS = {"in", "s", "h", "t", "b", "c", "f", "k", "st", "days", "bar", "cal"}  # units only where one is expected


@lru_cache(maxsize=1)
def named_units() -> dict[str, Unit]:
    """Return every unit by every name: symbols as they are written, and all names in lower case."""
    exact: dict[str, Unit] = {}
    lower: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        kind, _, rest = line.partition(": ")
        symbol, numbers, other, names = (part.strip() for part in rest.split("|"))
        factor, _, offset = numbers.partition(" + ")
        unit = Unit(symbol, kind, Fraction(factor), Fraction(offset or 0), other)
        for name in (symbol, *(name.replace("_", " ") for name in names.split())):
            for one in {name.replace("+s", ""), name.replace("+s", "s")}:
                exact[one] = unit
                lower.setdefault(one.lower(), unit)
    return {**lower, **exact}


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds quantities (a number and its unit) and what finds units."""
    names = "|".join(re.escape(name) for name in sorted(named_units(), key=len, reverse=True))
    unit = rf"(?P<unit>{names})(?![\w²³^/])"
    quantity = rf"(?P<number>{NUMBER}|{WORD_NUMBER})(?: |-)?(?:°|degrees? )?{unit}"
    return re.compile(quantity, re.IGNORECASE), re.compile(rf"(?<![\w/'’°^])°?{unit}", re.IGNORECASE)


def _unit(name: str) -> Unit:
    known = named_units()
    return known[name] if name in known else known[name.lower()]


def convert(value: Fraction, source: Unit, target: Unit) -> Fraction:
    """Return a value in another unit; a `ValueError` if the units measure different things."""
    if source.kind != target.kind:
        raise ValueError(f"{source.symbol} is a unit of {source.kind}, {target.symbol} one of {target.kind}")
    return (value + source.offset) * source.factor / target.factor - target.offset


@tool(
    numeric=True,
    description="Converts a length, weight, volume, area, speed, temperature or other quantity from one unit of "
    "measurement into another.",
    keywords="mile miles kilometre kilometres kilometer kilometers metres meters feet inches yards pounds kilograms "
    "ounces grams litres liters gallons pints acres hectares mph celsius fahrenheit degrees".split(),
    patterns=[r"\d ?°?[CF]\b", r"\d ?(?:km|cm|mm|kg|lbs?|oz|ft|mi|ml|ha|kn|kWh|psi)\b"],
    examples=[
        ("The race is 26.2 miles long. How many kilometres is that?", "26.2 miles to kilometres"),
        ("My suitcase weighs 50 pounds. What is that in kilograms?", "50 pounds to kilograms"),
        ("What is 98.6 degrees Fahrenheit on the Celsius scale?", "98.6 F to C"),
        ("How many litres of water fit into a tank of 12 gallons?", "12 gallons to litres"),
    ],
    mock_response="42.1648 km",
    version=VERSION,
    tau_s=0.0,
    top_k=20,
    samples=10,
    tau_f=0.5,
)
def units(text: str) -> str:
    """Convert a quantity; see the module."""
    line = one_line(text)
    quantities, mentions = _patterns()
    found = list(quantities.finditer(line))
    if not found:
        raise ValueError("there is no quantity in it; write e.g. 26.2 miles to kilometres")
    parts = [(number_of(match["number"]), _unit(match["unit"])) for match in found]
    source = parts[0][1]
    if any(unit.kind != source.kind for _, unit in parts) or (len(parts) > 1 and source.kind == "temperature"):
        raise ValueError("there are two quantities in it; give one")
    value = sum((convert(number, unit, source) for number, unit in parts[1:]), parts[0][0])
    target = _target(line, [match.span() for match in found], mentions) or named_units().get(source.other)
    if target is None:
        raise ValueError(f"it does not say into what {source.symbol} are converted")
    return f"{written(convert(value, source, target))} {target.symbol}"


def _target(line: str, quantities: list[tuple[int, int]], mentions: re.Pattern[str]) -> Unit | None:
    """Return the unit outside the quantities; None: there is none."""
    found = []
    for match in mentions.finditer(line):
        if any(start <= match.start() < end for start, end in quantities):
            continue
        expected = re.search(r"(?:\b(?:to|into|in|as)|=|->) ?$", line[: match.start()], re.IGNORECASE)
        if match["unit"].lower() not in _AMBIGUOUS or (expected and not line[match.end() :].strip(" .?")):
            found.append(_unit(match["unit"]))
    if len(set(found)) > 1:
        raise ValueError(f"it names {found[0].symbol} and {found[1].symbol}; give one unit to convert into")
    return found[0] if found else None
