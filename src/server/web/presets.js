// Presets: a name for a system prompt and sampling settings. Choosing a preset sets the system prompt of the
// conversation on the page, and the sampling settings.
import {ask} from '/dialogs.js';
import {make} from '/dom.js';
import {settings} from '/settings_store.js';

const $ = id => document.getElementById(id);
const SAMPLING = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];
const MAX_NAME = 80;

const all = () => Array.isArray(settings.values.presets) ? settings.values.presets : [];
const isSet = (preset, chat) => (preset.system || '') === (chat.system || '') &&
                                SAMPLING.every(name => (preset[name] ?? '') === settings.values[name]);
let current;

export function showPresets() {
  $('preset').replaceChildren(make('option', {value: ''}, all().length ? 'Choose …' : 'None yet'),
    ...all().map(p => make('option', {value: p.name}, p.name)));
  $('preset').value = all().find(p => isSet(p, current()))?.name ?? '';
  $('delete-preset').disabled = !$('preset').value;
}

function choose(name, page) {
  const preset = all().find(p => p.name === name), chat = page.current();
  if (!preset) return;
  preset.system ? chat.system = preset.system : delete chat.system;
  for (const key of SAMPLING) settings.set(key, preset[key] ?? '');
  page.change(chat);
}

function put(name, chat) {
  const sampling = Object.fromEntries(SAMPLING.map(key => [key, settings.values[key]]).filter(([, value]) => value !== ''));
  const preset = {name, ...(chat.system && {system: chat.system}), ...sampling};
  settings.set('presets', [...all().filter(p => p.name !== name), preset].sort((a, b) => a.name.localeCompare(b.name)));
}

// shown(): shows the fields of the dialog again.
export function wirePresets({page, say, shown}) {
  current = page.current;
  $('preset').addEventListener('change', () => {
    choose($('preset').value, page);
    shown();
    showPresets();
  });
  $('save-preset').addEventListener('click', async () => {
    const name = (await ask('Name of the preset', {input: $('preset').value, ok: 'Save'}))?.trim().slice(0, MAX_NAME);
    if (!name) return;
    if (all().some(p => p.name === name) && !await ask(`Replace the preset “${name}”?`, {ok: 'Replace'})) return;
    put(name, page.current());
    showPresets();
    say(`The preset “${name}” is saved.`);
  });
  $('delete-preset').addEventListener('click', async () => {
    const name = $('preset').value;
    if (!await ask(`Delete the preset “${name}”?`, {ok: 'Delete', danger: true})) return;
    settings.set('presets', all().filter(p => p.name !== name));
    showPresets();
  });
  $('settings').addEventListener('change', event => event.target.id === 'preset' || showPresets());
}
