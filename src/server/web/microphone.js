// Dictation: while the button is on, the microphone is recorded. Then the server's speech model writes down what was
// said, and the text is added to the box for the next message.
import {transcribe} from '/api.js';

const RATE = 16000, LONGEST_MS = 10 * 60 * 1000;

// A WAV file of one channel with 16 bits. samples: Float32Array.
function wavOf(samples) {
  const bytes = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, word) => [...word].forEach((c, i) => bytes.setUint8(at + i, c.charCodeAt(0)));
  text(0, 'RIFF');
  bytes.setUint32(4, 36 + 2 * samples.length, true);
  text(8, 'WAVEfmt ');
  bytes.setUint32(16, 16, true);
  bytes.setUint16(20, 1, true);
  bytes.setUint16(22, 1, true);
  bytes.setUint32(24, RATE, true);
  bytes.setUint32(28, 2 * RATE, true);
  bytes.setUint16(32, 2, true);
  bytes.setUint16(34, 16, true);
  text(36, 'data');
  bytes.setUint32(40, 2 * samples.length, true);
  samples.forEach((x, i) => bytes.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, x)) * 32767, true));
  return new Blob([bytes], {type: 'audio/wav'});
}

// The browser decodes what it has recorded, to the rate of speech models.
async function asWav(pieces) {
  const context = new OfflineAudioContext(1, 1, RATE);
  return wavOf((await context.decodeAudioData(await new Blob(pieces).arrayBuffer())).getChannelData(0));
}

// button: hidden if the server has no speech model (hears). add(text) takes what was said.
export function wireMicrophone(button, {add, say}) {
  let recorder = null;
  const show = state => {
    button.dataset.state = state;
    button.setAttribute('aria-pressed', String(state === 'on'));
    button.disabled = state === 'busy';
    button.title = {off: 'Speak', on: 'Stop, and write down what was said', busy: 'The server listens'}[state];
  };
  const finish = async pieces => {
    show('busy');
    try {
      const text = await transcribe(await asWav(pieces));
      if (text) add(text);
      say(text ? 'The text is in the box.' : 'No speech was heard.', !text);
    } catch (error) {
      say(error.message, true);
    }
    show('off');
  };
  const start = async () => {
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({audio: true});
    } catch (error) {
      return say(`The microphone cannot be used: ${error.message}`, true);
    }
    const pieces = [];
    recorder = new MediaRecorder(stream);
    const timer = setTimeout(() => recorder?.stop(), LONGEST_MS);
    recorder.addEventListener('dataavailable', event => pieces.push(event.data));
    recorder.addEventListener('stop', () => {
      clearTimeout(timer);
      stream.getTracks().forEach(track => track.stop());
      recorder = null;
      finish(pieces);
    });
    recorder.start();
    show('on');
    say('The microphone is on.');
  };
  show('off');
  button.addEventListener('click', () => recorder ? recorder.stop() : start());
}

export const hears = model => model.architecture?.input_modalities?.includes('audio') ?? false;
