"""scripts/requantize.py keeps the metadata and, as f32, exactly the numbers of its input."""
import pathlib
import subprocess
import sys

import gguf
import numpy
import pytest

from headroom_server import smollm2_path

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/requantize.py"
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32}
SEED = 20240229


def run(*arguments):
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_model(path, type_name):
    """A model file of one norm and two matrices of `type_name`, with every kind of metadata."""
    kind = gguf.GGMLQuantizationType[type_name.upper()]
    rng = numpy.random.default_rng(SEED)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("test.u8", 200)
    writer.add_int16("test.i16", -300)
    writer.add_uint64("test.u64", 2**63 + 1)
    writer.add_float32("test.f32", 0.1)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_key_value("test.bytes", b"caf\xc3\xa9 \xff", gguf.GGUFValueType.STRING)
    writer.add_array("test.strings", ["a", "", "\u00e9"])
    writer.add_key_value("test.i8s", [-1, 2], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT8)
    writer.add_array("test.floats", [0.5, -1.25])
    writer.add_file_type(FILE_TYPES[type_name])
    writer.add_tensor("norm", rng.standard_normal(64, dtype=numpy.float32))
    for name, shape in [("a", (3, 64)), ("b", (64, 32))]:
        data = gguf.quants.quantize(rng.standard_normal(shape, dtype=numpy.float32), kind)
        if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, data.view(numpy.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def metadata(path):
    """Every field but the header's numbers and the file type, as raw bytes with types."""
    return {
        field.name: (field.types, [field.parts[i].tobytes() for i in field.data])
        for field in gguf.GGUFReader(path).fields.values()
        if not field.name.startswith("GGUF.") and field.name != "general.file_type"
    }


def values(path):
    return {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize("type_name", FILE_TYPES)
def test_f32_holds_exactly_the_numbers_of_the_input(tmp_path, type_name):
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    write_model(source, type_name)
    result = run(source, target, "f32")
    assert result.returncode == 0, result.stderr
    wanted, got = values(source), values(target)
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        assert numpy.array_equal(got[name], value), name
        assert got[name].shape == value.shape
    assert all(t.tensor_type.name == "F32" for t in gguf.GGUFReader(target).tensors)
    assert metadata(target) == metadata(source)


@pytest.mark.parametrize("type_name", FILE_TYPES)
def test_each_type_is_written_as_gguf_quantises_it(tmp_path, type_name):
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    write_model(source, "f32")
    result = run(source, target, type_name)
    assert result.returncode == 0, result.stderr
    kind = gguf.GGMLQuantizationType[type_name.upper()]
    reader = gguf.GGUFReader(target)
    assert reader.fields["general.file_type"].contents() == FILE_TYPES[type_name]
    by_name = {tensor.name: tensor for tensor in reader.tensors}
    assert by_name["norm"].tensor_type.name == "F32"
    for name, value in values(source).items():
        if name != "norm":
            assert by_name[name].tensor_type == kind
            wanted = gguf.quants.quantize(value, kind)
            assert by_name[name].data.tobytes() == wanted.tobytes()
    assert metadata(target) == metadata(source)


def test_faults_are_named(tmp_path):
    assert "usage:" in run("only-one").stderr
    assert "usage:" in run("in.gguf", "out.gguf", "q3_k").stderr
    missing = run(tmp_path / "absent.gguf", tmp_path / "out.gguf", "f32")
    assert missing.returncode == 1 and "absent.gguf" in missing.stderr
    (tmp_path / "bad.gguf").write_bytes(b"not a model file, but long enough to have a header")
    bad = run(tmp_path / "bad.gguf", tmp_path / "out.gguf", "f32")
    assert bad.returncode == 1 and "bad.gguf" in bad.stderr and "Traceback" not in bad.stderr
    assert not list(tmp_path.glob("out*"))


@pytest.mark.slow
def test_smollm2_as_f32_holds_exactly_its_numbers(tmp_path):
    source = smollm2_path()
    if source is None:
        pytest.skip("the SmolLM2 model file is absent")
    target = tmp_path / "f32.gguf"
    result = run(source, target, "f32")
    assert result.returncode == 0, result.stderr
    wanted, got = gguf.GGUFReader(source).tensors, gguf.GGUFReader(target).tensors
    assert len(wanted) == len(got) > 0
    for a, b in zip(wanted, got):
        assert a.name == b.name
        assert numpy.array_equal(gguf.quants.dequantize(a.data, a.tensor_type), b.data), a.name
    assert metadata(target) == metadata(source)
