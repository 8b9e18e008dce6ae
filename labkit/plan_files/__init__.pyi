from .rows import (
    Kind as Kind,
    Mistakes as Mistakes,
    Row as Row,
    did_you_mean as did_you_mean,
    numbered as numbered,
    read_setting as read_setting,
    read_settings as read_settings,
    read_text as read_text,
    safe_name as safe_name,
    split_words as split_words,
)
from .yaml_rows import read_yaml as read_yaml
