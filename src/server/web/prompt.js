// The box for the next message. It grows with its text, accepts text files and images, and recalls earlier questions
// with the arrow keys.
import {make} from '/dom.js';
import {readFiles} from '/files.js';
import {isImage} from '/images.js';
import {wireMicrophone} from '/microphone.js';

const $ = id => document.getElementById(id);
let files = [];
let recalled = null;  // {at, text, draft} of the earlier question in the box

function fit() {
  const area = $('prompt');
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 'px';
}

function setText(text) {
  $('prompt').value = text;
  $('prompt').setSelectionRange(text.length, text.length);
  fit();
}

function showFiles() {
  const shown = file => isImage(file) ? make('img', {src: file.image, alt: file.name, title: file.name}) : file.name;
  const chip = (file, i) => make('li', {}, shown(file), make('button', {type: 'button', 'aria-label': `Remove ${file.name}`, onclick: () => {
    files.splice(i, 1);
    showFiles();
    $('prompt').focus();
  }}, '✕'));
  $('files').replaceChildren(...files.map(chip));
  $('files').hidden = !files.length;
}

async function addFiles(list, {say, model}) {
  try {
    const found = await readFiles(list, model());
    files.push(...found);
    say(`${found.map(f => f.name).join(', ')}: attached.`);
  } catch (error) {
    say(error.message, true);
  }
  showFiles();
  $('prompt').focus();
}

// step: 1 for an earlier question, -1 for a later one. Returns false if the arrow key must move the caret.
function recall(step, questions) {
  const {value, selectionStart} = $('prompt');
  const untouched = recalled ? value === recalled.text && [0, value.length].includes(selectionStart) : value === '';
  if (!untouched) recalled = null;
  const at = (recalled?.at ?? -1) + step, draft = recalled?.draft ?? value;
  if (!untouched || at < -1 || at >= questions.length) return false;
  recalled = at < 0 ? null : {at, text: questions[at], draft};
  setText(recalled?.text ?? draft);
  return true;
}

export function clearPrompt() {
  files = [];
  recalled = null;
  setText('');
  showFiles();
}

// isBusy(): whether an answer is streaming. questions(): the earlier questions, newest first. say(text, isError) shows
// a message to the user. model(): the chosen model's entry of /v1/models.
export function wirePrompt({send, stop, isBusy, questions, say, model}) {
  const add = list => addFiles(list, {say, model});
  $('form').addEventListener('submit', event => {
    event.preventDefault();
    if (isBusy()) return stop();
    const text = $('prompt').value.trim(), given = files;
    if (!text && !given.length) return;
    clearPrompt();
    send(text, given);
  });
  $('prompt').addEventListener('input', fit);
  $('prompt').addEventListener('keydown', event => {
    const step = {ArrowUp: 1, ArrowDown: -1}[event.key], plain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!isBusy()) $('form').requestSubmit();
    } else if (step && plain && recall(step, step === 1 || recalled ? questions() : [])) {
      event.preventDefault();
    }
  });
  wireMicrophone($('microphone'), {say, box: {read: () => $('prompt').value, write: setText}});
  $('attach').addEventListener('click', () => $('text-files').click());
  $('text-files').addEventListener('change', async () => {
    await add($('text-files').files);
    $('text-files').value = '';
  });
  $('prompt').addEventListener('paste', event => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    add(event.clipboardData.files);
  });
  const main = document.querySelector('main');
  main.addEventListener('dragover', event => event.dataTransfer.types.includes('Files') && event.preventDefault());
  main.addEventListener('drop', event => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    add(event.dataTransfer.files);
  });
}
