// The settings dialog and the choice of a model. An empty field means the model's default, which the field shows as
// placeholder.
import * as api from '/api.js';
import {readTools} from '/calls.js';
import {ask} from '/dialogs.js';
import {make} from '/dom.js';
import {settings} from '/store.js';

const $ = id => document.getElementById(id);
const fields = () => document.querySelectorAll('[data-setting]');
const RETRY_MS = 2000;

export function setTheme() {
  const theme = settings.values.theme;
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

// /props returns the defaults of the first model.
async function showDefaults() {
  const {model_alias: alias, default_generation_settings: {params, n_ctx: context}} = await api.props();
  const known = $('model').value === alias;
  const defaults = {...params, repetition_penalty: params.repeat_penalty, max_tokens: `up to ${context}`, seed: 'random'};
  for (const field of fields()) {
    const value = known ? defaults[field.dataset.setting] : undefined;
    if (field.type === 'number') field.placeholder = typeof value === 'number' ? Number(value.toPrecision(6)) : value ?? '';
  }
}

// Retries until the server responds and has a model.
export async function loadModels(say) {
  try {
    const models = await api.models();
    $('model').replaceChildren(...models.map(m => make('option', {value: m.id}, m.id)));
    if (models.some(m => m.id === settings.values.model)) $('model').value = settings.values.model;
    await showDefaults();
  } catch (error) {
    const refused = error instanceof api.ServerError;
    if (!$('model').value) $('model').replaceChildren(make('option', {value: ''}, refused ? 'not available' : 'no connection'));
    say(refused ? error.message : 'The server cannot be reached.');
    if (error.status !== 401) setTimeout(loadModels, RETRY_MS, say);
  }
}

export function openSettings() {
  for (const field of fields()) field.value = settings.values[field.dataset.setting];
  $('settings').showModal();
}

function wireField(field, say) {
  const name = field.dataset.setting;
  field.addEventListener('change', () => {
    field.setCustomValidity('');
    if (name === 'tools') {
      try {
        readTools(field.value);
      } catch (error) {
        field.setCustomValidity(error.message);
        field.reportValidity();
        return;
      }
    }
    settings.set(name, field.value);
    setTheme();
    if (name === 'key') loadModels(say);
  });
}

// removeAll() deletes all conversations. say(text) shows a message to the user.
export function wireSettings({removeAll, say}) {
  for (const field of fields()) wireField(field, say);
  $('open-settings').addEventListener('click', openSettings);
  $('clear').addEventListener('click', async () => {
    if (!await ask('Delete all conversations in this browser?', {ok: 'Delete all', danger: true})) return;
    $('settings').close();
    removeAll();
  });
  $('model').addEventListener('change', () => {
    settings.set('model', $('model').value);
    showDefaults();
  });
}
