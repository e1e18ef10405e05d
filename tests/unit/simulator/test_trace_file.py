"""Traces from files: octavo's columns, the public ones, and errors that say where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.simulator.trace_file import read_trace


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_own_columns_with_tenants_priorities_and_prefixes(tmp_path: Path) -> None:
    text = (
        "arrival,input_tokens,output_tokens,tenant,priority,prefix_id,prefix_tokens\n"
        "2.5,10,3,b,-1,sys,4\n1.0,20,5,a,2,sys,8\n4,7,1,a,,,\n5,7,2,a,0,other,\n"
    )
    trace = read_trace(written(tmp_path, "t.csv", text))
    assert trace.arrival_s.tolist() == [0.0, 1.5, 3.0, 4.0]
    assert trace.num_prompt.tolist() == [20, 10, 7, 7] and trace.num_output.tolist() == [5, 3, 1, 2]
    assert [trace.tenants[i] for i in trace.tenant] == ["a", "b", "a", "a"] and trace.priority.tolist() == [2, -1, 0, 0]
    assert trace.shared == (((0, 8),), ((0, 4),), (), ((1, 7),))


def test_azure_columns_with_seven_digits_of_a_second(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n2024-05-10 00:00:00.009930+00:00,1,0\n"
    )
    trace = read_trace(written(tmp_path, "azure.csv", text), limit=2)
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 0.052], abs=1e-6)
    assert trace.num_prompt.tolist() == [4808, 3180] and trace.shared is None


def test_a_time_with_a_zone_is_read(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.25+00:00,5,0\n2024-05-10 02:00:01+02:00,6,2\n"
    trace = read_trace(written(tmp_path, "azure.csv", text))
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 0.75]) and trace.num_output.tolist() == [1, 2]


def test_mooncake_blocks_become_shared_contents(tmp_path: Path) -> None:
    text = (
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]}\n\n'
        '{"timestamp": 3000, "input_length": 512, "output_length": 6, "hash_ids": [7]}\n'
    )
    trace = read_trace(written(tmp_path, "mooncake.jsonl", text))
    assert trace.arrival_s.tolist() == [0.0, 3.0]
    assert trace.shared == (((7, 512), (8, 88)), ((7, 512),))


@pytest.mark.parametrize("header", ["timestamp,input_tokens,output_tokens", "Timestamp,Model,Request tokens,Response tokens"])
def test_servegen_and_burstgpt_columns(tmp_path: Path, header: str) -> None:
    row = "1.5,12,4" if "Model" not in header else "1.5,ChatGPT,12,4"
    trace = read_trace(written(tmp_path, "t.csv", f"{header}\n{row}\n"))
    assert (trace.num_prompt[0], trace.num_output[0]) == (12, 4)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("t.csv", "arrival,input_tokens,output_tokens\n1,2,3\n2,x,3\n", "line 3, column input_tokens: 'x'"),
        ("t.csv", "arrival,input_tokens,output_tokens\n1,0,3\n", "line 2, column input_tokens: '0'"),
        ("t.csv", "arrival,input_tokens,output_tokens\n1,2.5,3\n", "column input_tokens"),
        ("t.csv", "arrival,input_tokens,output_tokens\n1,2\n", "column output_tokens: missing"),
        ("t.csv", "arrival,input_tokens,output_tokens\nnan,2,3\n", "column arrival: 'nan'"),
        ("t.csv", "arrival,input_tokens,output_tokens\n-1,2,3\n", "column arrival: '-1'"),
        ("t.csv", "arrival,input_tokens,output_tokens\n2023-99-01 00:00:00,2,3\n", "column arrival"),
        ("t.csv", "arrival,input_tokens,output_tokens,priority\n1,2,3,high\n", "column priority: 'high'"),
        ("t.csv", "arrival,input_tokens,output_tokens,prefix_id,prefix_tokens\n1,2,3,a,-4\n", "column prefix_tokens"),
        ("t.csv", "time,in,out\n1,2,3\n", "has the columns time, in, out; known are"),
        ("t.csv", "arrival,input_tokens,output_tokens\n", "holds no requests"),
        ("t.csv", "", "holds no requests"),
        ("t.jsonl", '{"timestamp": 0}\n', "has the columns timestamp"),
        ("t.jsonl", "[1]\n", "line 1: not a JSON object"),
        ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": true}\n', "column output_length: True"),
        ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [-1]}\n', "column hash_ids"),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_column(tmp_path: Path, name: str, text: str, part: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_trace(written(tmp_path, name, text))
    assert part in error.value.message and name in error.value.message


def test_a_missing_and_a_binary_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv: No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a UTF-8 text"):
        read_trace(tmp_path / "b.csv")


def test_arrays_are_of_one_length(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.csv", "arrival,input_tokens,output_tokens\n" + "1,2,3\n" * 5))
    for column in (trace.arrival_s, trace.num_prompt, trace.num_output, trace.tenant, trace.priority):
        assert isinstance(column, np.ndarray) and len(column) == len(trace) == 5
