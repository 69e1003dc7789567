"""Divides the assets of a project by their days: one run of Dagster takes assets of one set of days only."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

Days = dg.DailyPartitionsDefinition | None


def specs_in(assets: Iterable[Any]) -> dict[dg.AssetKey, dg.AssetSpec]:
    """Return the specs of assets by key; other values, such as checks, are left out."""
    found: dict[dg.AssetKey, dg.AssetSpec] = {}
    for one in assets:
        if isinstance(one, dg.AssetsDefinition):
            found |= {key: one.get_asset_spec(key) for key in one.keys}
        elif isinstance(one, dg.AssetSpec):
            found[one.key] = one
    return found


def days_by_table(assets: Iterable[Any]) -> Mapping[str, dg.DailyPartitionsDefinition]:
    """Return the days of each table and stream that has days, by its dotted name."""
    return {
        ".".join(key.path): spec.partitions_def
        for key, spec in specs_in(assets).items()
        if isinstance(spec.partitions_def, dg.DailyPartitionsDefinition)
    }


def job_selections(name: str, assets: Iterable[Any]) -> dict[str, list[dg.AssetKey]]:
    """Return job name -> the assets it runs.

        all assets with days have the same     -> {"shop": everything}
        orders and payments have other days    -> {"shop_orders": ..., "shop_payments": ...}

    An asset without days runs with the assets it is computed from; one that is computed from none of these, in the
    first job.

    Args:
        name: the name of the project.
        assets: its assets.
    """
    specs = specs_in(assets)
    sets: list[tuple[dg.PartitionsDefinition, list[dg.AssetKey]]] = []
    for key in sorted(specs, key=lambda one: (bool(list(specs[one].deps)), one)):  # streams first, to name the jobs
        days = specs[key].partitions_def
        if days is not None:
            known = next((keys for one, keys in sets if one == days), None)
            if known is None:
                sets.append((days, [key]))
            else:
                known.append(key)
    if len(sets) < 2:
        return {name: list(specs)}
    for key in specs:
        if specs[key].partitions_def is None:
            home = _first_with_days(key, specs)
            next((keys for _, keys in sets if home in keys), sets[0][1]).append(key)
    return {f"{name}_{keys[0].path[-1]}": keys for _, keys in sets}


def _first_with_days(key: dg.AssetKey, specs: Mapping[dg.AssetKey, dg.AssetSpec]) -> dg.AssetKey | None:
    """Return the nearest asset upstream that has days."""
    seen, following = {key}, [key]
    while following:
        one = following.pop(0)
        if one in specs and specs[one].partitions_def is not None:
            return one
        upstream = [dep.asset_key for dep in specs[one].deps] if one in specs else []
        following += [dep for dep in upstream if dep not in seen]
        seen.update(upstream)
    return None
