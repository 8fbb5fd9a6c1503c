// Dictation: while the button is on, the server's speech model hears the microphone, and what is said goes to the box for
// the next message while it is spoken.
import {dictation} from '/api.js';

const LONGEST_MS = 10 * 60 * 1000;

function base64(pcm) {
  let text = '';
  for (const byte of new Uint8Array(pcm.buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}

// The parts of what was said go to the end of the box. A part grows, and may change in a word when it is complete. If the
// user edits the box, what is there stays.
function writer(box) {
  let before = box.read().trimEnd(), shown = box.read(), parts = new Map(), heard = false;
  const show = (id, text, isWhole) => {
    if (box.read() !== shown) {
      before = box.read().trimEnd();
      parts = new Map([...parts.keys()].map(id => [id, {text: '', isCut: true}]));
    }
    const part = parts.get(id) ?? {text: ''};
    if (isWhole && part.isCut) return;
    part.text = isWhole ? text : part.text + text;
    parts.set(id, part);
    heard ||= part.text.trim() !== '';
    shown = [before, ...[...parts.values()].map(part => part.text.trim())].filter(Boolean).join(' ');
    box.write(shown);
  };
  return {add: (id, text) => show(id, text, false), complete: (id, text) => show(id, text, true), heard: () => heard};
}

// The sound of the microphone, in pieces of 100 ms. Returns a function that ends it.
async function listen(add) {
  const stream = await navigator.mediaDevices.getUserMedia({audio: true}), context = new AudioContext();
  const end = () => {
    stream.getTracks().forEach(track => track.stop());
    context.close();
  };
  try {
    await context.audioWorklet.addModule('/microphone_worklet.js');
    const node = new AudioWorkletNode(context, 'pcm', {numberOfOutputs: 0});
    node.port.onmessage = event => add(event.data);
    context.createMediaStreamSource(stream).connect(node);
  } catch (error) {
    end();
    throw error;
  }
  return end;
}

// button: hidden if the server has no speech model (hears). box: {read(), write(text)}.
export function wireMicrophone(button, {box, say}) {
  let stop = null;
  const show = state => {
    button.dataset.state = state;
    button.setAttribute('aria-pressed', String(state === 'on'));
    button.disabled = state === 'busy';
    button.title = {off: 'Speak', on: 'Stop', busy: 'The server listens'}[state];
  };
  const start = async () => {
    const text = writer(box);
    let end = null, timer = null;
    const over = (message, isFault) => {
      clearTimeout(timer);
      end?.();
      stop = end = null;
      show('off');
      say(message, isFault);
    };
    show('busy');
    try {
      const session = await dictation({
        onDelta: text.add, onText: text.complete,
        onEnd: fault => over(fault ?? (text.heard() ? 'The text is in the box.' : 'No speech was heard.'), !!fault || !text.heard()),
      });
      try {
        end = await listen(pcm => session.append(base64(pcm)));
      } catch (error) {
        session.close();
        return over(`The microphone cannot be used: ${error.message}`, true);
      }
      stop = () => {
        show('busy');
        clearTimeout(timer);
        end?.();
        end = null;
        session.finish();
      };
      timer = setTimeout(() => stop?.(), LONGEST_MS);
    } catch (error) {
      return over(error.message, true);
    }
    show('on');
    say('The microphone is on.');
  };
  show('off');
  button.addEventListener('click', () => stop ? stop() : start());
}

export const hears = model => model.architecture?.input_modalities?.includes('audio') ?? false;
