// Turns the microphone's sound into PCM of 16 bits and 24,000 samples a second, and posts a tenth of a second at a time.
const RATE = 24000, PIECE = RATE / 10, RATIO = sampleRate / RATE;

class Pcm extends AudioWorkletProcessor {
  piece = new Int16Array(PIECE);
  filled = 0;
  sum = 0;   // of the samples in the next output sample
  left = RATIO;  // how much of it is missing, in samples of the input

  // An output sample is the mean of the input over its length.
  add(sample) {
    for (let part = 1; part > 0;) {
      const used = Math.min(part, this.left);
      this.sum += used * sample;
      this.left -= used;
      part -= used;
      if (this.left > 1e-9) continue;
      this.piece[this.filled++] = Math.max(-1, Math.min(1, this.sum / RATIO)) * 32767;
      this.sum = 0;
      this.left = RATIO;
      if (this.filled < PIECE) continue;
      this.port.postMessage(this.piece.slice());
      this.filled = 0;
    }
  }

  process([channels]) {
    channels[0]?.forEach((_, i) => this.add(channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length));
    return true;
  }
}

registerProcessor('pcm', Pcm);
