"""WAV files of sounds that a formula makes."""
import struct


def sound(n, seed):
    """The samples of tools/goldens/make_speech.py."""
    samples, state = [], seed
    for i in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        noise = (state >> 8) % 4096 / 4096 - 0.5
        wave = 0.25 if i // (20 + i // 4800 % 7 * 8) % 2 else -0.25
        samples.append((1 + i // 2400 % 5) / 16 * (noise + wave))
    return samples


def wav(n, seed=1):
    """n samples of 32-bit floats, 16,000 a second."""
    data = struct.pack(f"<{n}f", *sound(n, seed))
    form = struct.pack("<HHIIHH", 3, 1, 16000, 64000, 4, 32)
    head = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data
