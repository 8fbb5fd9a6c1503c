// The settings dialog, and the choices of model and thinking. An empty field means the model's default, which the field
// shows as placeholder. Some fields belong to the conversation on the page (data-own), the others to all of them.
import * as api from '/api.js';
import {readTools} from '/calls.js';
import {ask} from '/dialogs.js';
import {make} from '/dom.js';
import {hears} from '/microphone.js';
import {showPresets, wirePresets} from '/presets.js';
import {readSchema} from '/request.js';
import {settings} from '/settings_store.js';

const $ = id => document.getElementById(id);
const fields = () => document.querySelectorAll('[data-setting]');
const ownFields = () => document.querySelectorAll('[data-own]');
const CHECKS = {tools: readTools, schema: readSchema};
const LABELS = {on: 'on', off: 'off', minimal: 'minimal', low: 'low', medium: 'medium', high: 'high'};
const RETRY_MS = 2000;
let models = [];  // of /v1/models
let page;

export const chosenModel = () => models.find(m => m.id === $('model').value);

export function setTheme() {
  const theme = settings.values.theme;
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

// The chosen model's defaults, as far as the server knows them: not before a model is loaded.
function showDefaults() {
  const {default_sampling: sampling, max_model_len: context} = chosenModel() ?? {};
  const defaults = {...sampling, repetition_penalty: sampling?.repeat_penalty, seed: 'random', max_tokens: context && `up to ${context}`};
  for (const field of fields()) {
    const value = defaults[field.dataset.setting];
    if (field.type === 'number') field.placeholder = typeof value === 'number' ? Number(value.toPrecision(6)) : value ?? '';
  }
}

// The choices that the model's template knows: a switch, efforts, or none.
function showThinking() {
  const {switch: name, efforts = []} = chosenModel()?.thinking ?? {};
  const choices = [...(name ? ['off', 'on'] : []), ...efforts];
  $('thinking').replaceChildren(make('option', {value: ''}, 'default'), ...choices.map(c => make('option', {value: c}, LABELS[c] ?? c)));
  $('thinking').value = choices.includes(settings.values.thinking) ? settings.values.thinking : '';
  $('thinking').parentNode.hidden = !choices.length;
}

function showModel() {
  showDefaults();
  showThinking();
  page.modelChanged();
}

// Retries until the server responds and has a model.
export async function loadModels(say) {
  try {
    const chosen = $('model').value || settings.values.model;
    models = await api.models();
    $('microphone').hidden = !models.some(hears);
    const writers = models.filter(m => !hears(m));
    $('model').replaceChildren(...(writers.length ? writers : models).map(m => make('option', {value: m.id}, m.id)));
    if (models.some(m => m.id === chosen)) $('model').value = chosen;
    showModel();
  } catch (error) {
    const refused = error instanceof api.ServerError;
    if (!$('model').value) $('model').replaceChildren(make('option', {value: ''}, refused ? 'not available' : 'no connection'));
    say(refused ? error.message : 'The server cannot be reached.');
    if (error.status !== 401) setTimeout(loadModels, RETRY_MS, say);
  }
}

function showFields() {
  for (const field of fields()) field.value = settings.values[field.dataset.setting];
  for (const field of ownFields()) field.value = page.current()[field.dataset.own] ?? '';
  $('own-system').placeholder = settings.values.system.trim() ? `As in all conversations: ${settings.values.system}` : 'None';
}

export function openSettings() {
  showPresets();
  showFields();
  $('settings').showModal();
}

// Whether the field's text can be used. If not, the browser shows why.
function isValid(field, name) {
  field.setCustomValidity('');
  try {
    CHECKS[name]?.(field.value);
    return true;
  } catch (error) {
    field.setCustomValidity(error.message);
    field.reportValidity();
    return false;
  }
}

function wireField(field, say) {
  const name = field.dataset.setting;
  field.addEventListener('change', () => {
    if (!isValid(field, name)) return;
    settings.set(name, field.value);
    setTheme();
    if (name === 'key') loadModels(say);
    if (name === 'system') showFields();
  });
}

function wireOwnField(field) {
  const name = field.dataset.own;
  field.addEventListener('change', () => {
    if (!isValid(field, name)) return;
    const chat = page.current();
    field.value.trim() ? chat[name] = field.value : delete chat[name];
    page.change(chat);
  });
}

// given: {say(text, seen), page, removeAll(), modelChanged()}.
export function wireSettings({say, page: thePage, removeAll, modelChanged}) {
  page = {...thePage, modelChanged};
  for (const field of fields()) wireField(field, say);
  for (const field of ownFields()) wireOwnField(field);
  wirePresets({page, say, shown: showFields});
  $('open-settings').addEventListener('click', openSettings);
  $('clear').addEventListener('click', async () => {
    if (!await ask('Delete all conversations in this browser?', {ok: 'Delete all', danger: true})) return;
    $('settings').close();
    removeAll();
  });
  $('model').addEventListener('change', () => {
    settings.set('model', $('model').value);
    showModel();
  });
  $('thinking').addEventListener('change', () => settings.set('thinking', $('thinking').value));
}
