// The list of conversations: search, rename, delete, export and import. `page` has the functions of chat.js for
// conversations.
import * as answers from '/answers.js';
import {ask} from '/dialogs.js';
import {make} from '/dom.js';
import * as store from '/store.js';

const $ = id => document.getElementById(id);
const counted = n => `${n} conversation${n === 1 ? '' : 's'}`;
let page;

async function rename(one) {
  const title = (await ask('Name of the conversation', {input: one.title, ok: 'Rename'}))?.trim();
  if (!title) return;
  one.title = title;
  page.change(one);
}

async function remove(one) {
  if (await ask(`Delete “${one.title}”?`, {ok: 'Delete', danger: true})) page.remove(one);
}

function item(one) {
  const on = one.id === page.current().id;
  const button = (text, name, label, action) => make('button', {type: 'button', class: name, 'aria-label': label, onclick: action}, text);
  const written = answers.isWritten(one.id);
  const sign = written ? [make('span', {class: 'sign', title: 'An answer is being written', role: 'img', 'aria-label': 'An answer is being written in'})] : [];
  const open = make('button', {type: 'button', class: 'open', title: one.title, onclick: () => page.open(one), ...(on && {'aria-current': 'true'})}, ...sign, one.title);
  return make('li', {class: [on && 'on', written && 'written'].filter(Boolean).join(' ')}, open, button('✎', 'rename', `Rename “${one.title}”`, () => rename(one)),
    button('✕', 'delete', `Delete “${one.title}”`, () => remove(one)));
}

export function showList() {
  const found = $('search').value.trim() ? store.search($('search').value) : store.all();
  $('list').replaceChildren(...found.map(item));
}

// On phones, the side is shown on demand.
export function setSide(isOpen) {
  $('side').classList.toggle('open', isOpen);
  $('shade').hidden = !isOpen;
  $('menu').setAttribute('aria-expanded', isOpen);
  if (isOpen) $('new').focus();
}

function download(text, name) {
  const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  make('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function importFile() {
  try {
    const {taken, known, failed} = await store.importText(await $('file').files[0].text());
    const stay = failed ? ` This browser does not save them (${failed}), so they last as long as this page.` : '';
    page.say(`${counted(taken)} imported${known ? `, ${known} already here` : ''}.${stay}`, true);
  } catch (error) {
    page.say(`The import failed: ${error.message}`, true);
  }
  $('file').value = '';
  showList();
}

export function wireSide(given) {
  page = given;
  $('new').addEventListener('click', () => page.open(store.fresh()));
  $('search').addEventListener('input', showList);
  $('menu').addEventListener('click', () => setSide(!$('side').classList.contains('open')));
  $('shade').addEventListener('click', () => setSide(false));
  $('export').addEventListener('click', () => download(store.exported(), 'conversations.json'));
  $('import').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', importFile);
}
