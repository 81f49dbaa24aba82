// Starts the playground. The path `/run` runs the snippet of its link at once.
import { mount } from 'svelte';
import Playground from './Playground.svelte';
import './style.css';

mount(Playground, {
  target: document.getElementById('app'),
  props: { instant: location.pathname === '/run' },
});
