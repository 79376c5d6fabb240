"""``structattn schema``: the JSON Schema of a run's settings."""


def schema() -> None:
    """Print the JSON Schema of the settings, for editors."""
    import json

    from structattn.settings.run import RunSettings

    print(json.dumps(RunSettings.model_json_schema(), indent=2, ensure_ascii=False))
